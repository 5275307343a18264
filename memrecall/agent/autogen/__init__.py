"""The AutoGen classes: agent, model context, memory and tools."""
