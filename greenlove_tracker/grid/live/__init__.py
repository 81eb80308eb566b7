"""Carbon intensity by the hour: of services, a file or the tables; loaded only where asked for."""
