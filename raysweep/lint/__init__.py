"""What is wrong with files that start clusters, beyond what their readers say: `ray up`, KubeRay, SkyPilot.

The command ``lint`` calls it. It reads one file, reaches no cloud and changes nothing; a problem is one line with its place.
"""
