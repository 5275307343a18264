"""Terminal views of tool calls and chat turns."""
