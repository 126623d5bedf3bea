"""The `qd` command."""

from quarterdeck.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
