"""OpenID Connect as a relying party. Knows no people, workspaces, databases or HTTP routes."""
