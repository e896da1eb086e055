"""What the project runs on itself: the gate and its parts, the browser's installer, the Binder replay. Not shipped."""
