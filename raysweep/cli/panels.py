"""The headings under which the help lists the commands, in this order."""

STEER = "Run and steer"
LOOK = "Look and choose"
DATA = "Data and models"
PAPERS = "Papers and recordings"
