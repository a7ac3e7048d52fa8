from raysweep.cli.commands import main

main()
