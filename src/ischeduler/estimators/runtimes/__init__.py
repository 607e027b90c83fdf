"""Where a plug-in's code runs: this Python, a process, a container, behind HTTP, or as a Tapis app. One contract for all."""
