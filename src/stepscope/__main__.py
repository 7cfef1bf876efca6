"""`python -m stepscope`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory: a queue.py of the user is not the one we import
    from stepscope import cli

    cli.main()
