"""Client hooks: recall for every prompt and capture of every turn of a coding assistant.

`memrecall hooks install CLIENT` writes the client's settings, so that the client runs
`memrecall hook EVENT` by itself. Modules that this command needs while a service is running import
nothing but the standard library, because a prompt waits for them.
"""
