"""The form of help texts."""


def examples(*lines: str) -> str:
    """Lay out the examples that end the help text of a command, one command line each.

    Pass the result as `epilog` of the command.
    """
    # The control character tells the formatter to leave the line breaks alone.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
