"""Evaluation of encoders and their operating points on labeled sentences, retrieval data and pairs."""
