"""What a sweep's file may say, as typed and frozen values: the sweep, its search space, and the configuration of one trial.

YAML and overrides are turned into these once, at the edge; the command line and the public API do that, and every other
package is handed the result.
"""
