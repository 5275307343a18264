"""Client hooks: recall for every prompt and capture of every turn of a coding assistant.

`memrecall connect` writes the client's settings, so that the client runs `client.py`
for each event. That module imports nothing but the standard library, because a prompt waits for it.
"""
