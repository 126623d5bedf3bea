"""What we are made of that others wrote: what of it is known to be unsafe (`make audit`), and a list of it all
(`make sbom`). Both read the locks, which name every package with its version and the hashes of its files."""
