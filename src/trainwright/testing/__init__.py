"""For tests of plug-ins and of our own: small artefacts that are made in a moment."""
