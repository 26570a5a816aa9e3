"""What stands around every command: how it is found, its settings in layers, what a dry run says.

Words, variables and files of settings come in; a command with its options filled goes out, or a message that
names file, line and key. Start at `lazy_group.py`.
"""
