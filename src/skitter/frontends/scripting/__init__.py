"""Scripts: JavaScript in a sandbox: a QuickJS engine in a process of its own, with limits on time and memory."""
