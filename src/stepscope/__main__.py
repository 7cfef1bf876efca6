"""`python -m stepscope`."""

from stepscope.cli import main

if __name__ == "__main__":
    main()
