"""The `qd` command."""

from quarterdeck.cli.main import main

if __name__ == "__main__":
    main()
