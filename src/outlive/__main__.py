"""``python -m outlive`` is the command line."""

from outlive.cli.main import main

if __name__ == "__main__":
    main()
