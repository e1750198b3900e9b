"""The names of the subpackage, each imported at its first use."""

from .arrays import as_float as as_float, im2vector as im2vector, is_colour as is_colour, vector2im as vector2im
from .light import linear_light as linear_light, srgb as srgb
from .metadata import Metadata as Metadata, upright as upright
from .outputs import check_output as check_output, check_writable as check_writable
from .reading import read as read, read_with_metadata as read_with_metadata
from .writing import Levels as Levels, check_format as check_format, fit_to_levels as fit_to_levels, write as write
