"""`python -m stepscope`."""

from stepscope import cli

if __name__ == "__main__":
    cli.main()
