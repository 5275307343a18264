"""`python -m memrecall` is the command line."""

from memrecall.cli import main

if __name__ == "__main__":
    main()
