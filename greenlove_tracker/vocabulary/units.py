"""The only conversions between units. Inside the package there is one canonical unit per quantity."""

SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
JOULES_PER_KWH = 3.6e6
GRAMS_PER_KG = 1000.0
KG_PER_POUND = 0.45359237  # exact by definition: international yard and pound agreement, 1959
BYTES_PER_GB = 1024**3  # memory sizes, as NVML, psutil and CodeCarbon count them


def kwh_from_w_s(power_w: float, duration_s: float) -> float:
    """Return the energy in kWh of a constant power in W over a duration in s."""
    return power_w * duration_s / JOULES_PER_KWH


def w_from_kwh_s(energy_kwh: float, duration_s: float) -> float | None:
    """Return the mean power in W of an energy in kWh over a duration in s; None where the duration is not positive."""
    if duration_s > 0:
        return energy_kwh * JOULES_PER_KWH / duration_s
    return None


def kgco2e_from_kwh(energy_kwh: float, intensity_gco2e_per_kwh: float) -> float:
    """Return the emissions in kgCO2e of an energy in kWh at a carbon intensity in gCO2e/kWh."""
    return energy_kwh * intensity_gco2e_per_kwh / GRAMS_PER_KG


def h_from_s(duration_s: float) -> float:
    """Return hours from seconds."""
    return duration_s / SECONDS_PER_HOUR


def g_per_kwh_from_lb_per_mwh(intensity_lb_per_mwh: float) -> float:
    """Return gCO2e/kWh from lbCO2e/MWh, the unit of EPA's eGRID (1 lb/MWh = 0.45359237 g/kWh)."""
    return intensity_lb_per_mwh * KG_PER_POUND
