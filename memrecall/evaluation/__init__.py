"""Evaluation: ask labelled questions through the production code path and measure the results.

Import from the modules of this package: some of them load numpy, some the agent.
"""
