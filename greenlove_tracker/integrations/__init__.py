"""Trackers for the loops of other libraries; each module needs its library, and nothing else imports them."""
