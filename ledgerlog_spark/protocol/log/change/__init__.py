"""Changes of a head that no producer makes: truncation, retention, properties, orphans."""
