"""What the other rooms speak of: records, forecasts, phases, prices, units, errors."""
