"""Evaluation: labelled questions asked through the production path, and what the answers are worth.

Import what you need from the rooms of this package: some of them load numpy, some the agent.
"""
