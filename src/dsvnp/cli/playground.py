"""`dsvnp playground`: the page of the package in a browser."""

from typing import Annotated

import typer


def playground(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes one that is free.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser, or only serve it.")
    ] = True,
) -> None:
    """Play with neural processes in the browser: place points and watch what each model believes."""
    import webbrowser

    from dsvnp.playground.server import address, make_server

    with make_server(port) as server:
        typer.echo(f"The playground is at {address(server)} (to this machine alone); stop it with Ctrl-C.")
        if browser:
            webbrowser.open(address(server))
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("Stopped.")
