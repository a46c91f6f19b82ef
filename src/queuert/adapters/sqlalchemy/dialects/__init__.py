"""The dialects that are supported. Each is a module that is imported when its driver is used."""
