"""`qd models`."""

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Profile
from quarterdeck.cli.output import note, print_json, print_table


def models(profile: Profile = None, as_json: AsJson = False) -> None:
    """List the models that sessions can use."""
    with open_client(profile) as client:
        found = client.list_models()
    if as_json:
        print_json(found)
        return
    rows = ([one.model, one.provider, "yes" if one.model == found.default else ""] for one in found.items)
    print_table(("MODEL", "PROVIDER", "DEFAULT"), rows, empty="No models.")
    others = [f"{provider}:NAME" for provider in found.providers if provider != "demo"]
    if others:
        note(f"Other models can be used as {' or '.join(others)}.")
