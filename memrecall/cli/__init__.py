"""The command line. One file a family of commands."""


def main() -> None:
    """Run the command line; errors end it with one line and a code."""
    from memrecall.cli.app import run  # the parser's own imports, only when it is used

    run()
