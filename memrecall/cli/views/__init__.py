"""Terminal views of recalls, tool calls and chat turns."""
