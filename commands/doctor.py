"""The command that looks at the installation and says what to mend."""

import sys

import click

from commands.output import Output, with_output, writing_command


@writing_command
@click.option(
    "--compile",
    "compiling",
    is_flag=True,
    help="Compile the kernels of a first decision now: a minute, once.",
)
@with_output
def doctor(out: Output, compiling: bool) -> None:
    """Check the installation and the store, and say what to do.

    Python, packages against requirements and pins, extras, torch, compiled kernels, weights, and every file
    of the store. Exit code 1 where something is broken.

    \b
    Examples:
      twin doctor
      twin doctor --compile
    """
    from commands.show import doctor as show
    from replay.health import diagnosis

    with out.console.progress() as progress:
        found = diagnosis.diagnose(out.store, compile_kernels=compiling, progress=progress)
    out.show(found.to_json(), lambda console: show.diagnosis(console, found))
    sys.exit(0 if found.ok else 1)
