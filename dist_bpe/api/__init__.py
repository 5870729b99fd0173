"""The functions of the package; each lies in the file of the commands that it stands beside."""
