"""Agent frameworks: one module each, imported by its own name, behind an extra of the same name.

    from memrecall.integrations.agent_framework import RecallProvider, memory_tools

A module needs its framework installed; importing this package does not.
"""
