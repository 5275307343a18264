"""Entry point of `python -m memrecall`."""

from memrecall.cli import main

if __name__ == "__main__":
    main()
