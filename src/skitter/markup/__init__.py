"""HTML pages behind small adapters: CSS queries made ready once, two HTML5 engines that run them."""
