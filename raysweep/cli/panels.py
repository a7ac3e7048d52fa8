"""The headings that group commands in the help, in this order."""

STEER = "Run and steer"
LOOK = "Look and choose"
DATA = "Data and models"
PAPERS = "Papers and recordings"
