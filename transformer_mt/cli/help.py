"""The form of help texts."""

from typing import Any

from typer.core import TyperCommand


def examples(*lines: str) -> str:
    """Lay out the examples that end the help text of a command, one command line each.

    Pass the result as `epilog` of the command.
    """
    # The control character tells the formatter to leave the line breaks alone.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class GroupedCommand(TyperCommand):
    """A command with so many options that its help shows them in groups.

    The group of an option is its `rich_help_panel`; those without come first.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group, in the order of their first options."""
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                group = getattr(parameter, "rich_help_panel", None) or "Options"
                groups.setdefault(group, []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)
