"""The command line: one module per family of commands."""

import sys


def main() -> None:
    """Run the command line and exit; an error is one line and an exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and not {"-h", "--help"} & set(arguments):
        # A prompt waits for a hook: importing the parser would take longer than the hook itself.
        from memrecall.integrations.hooks.hook import run_hook

        run_hook(arguments[1:])
        return
    from memrecall.cli.app import run  # imports the parser only when it is used

    run()
