"""The Model Context Protocol, with its official SDK: tools, resources and a prompt."""
