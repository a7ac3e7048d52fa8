"""Where runs and artifacts are kept: folders of file systems, and prefixes of object stores with what keeps them whole.

Called by whatever reads or writes a run or an artifact; nothing here knows what they hold.
"""
