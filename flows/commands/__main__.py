from flows.commands.cli import main

main()
