"""The window: widgets offer signals and slots and know nobody; `main_window` wires them."""
