"""Track the training loops of other libraries. Each module needs its library; nothing else imports it."""
