"""The command line: one module per family of commands."""


def main() -> None:
    """Run the command line and exit; an error is one line and an exit code."""
    from memrecall.cli.app import run_command_line  # imports the parser only when it is used

    run_command_line()
