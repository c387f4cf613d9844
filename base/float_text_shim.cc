#include "base/float_text_shim_internal.h"

#include <double-conversion/double-conversion.h>

#include <limits>

size_t float_shim_shortest(double v, char digits[FLOAT_DIGITS_SIZE], int *out_point)
{
    using converter = double_conversion::DoubleToStringConverter;
    bool negative;
    int length;

    converter::DoubleToAscii(v, converter::SHORTEST, 0, digits, FLOAT_DIGITS_SIZE, &negative,
                             &length, out_point);
    return static_cast<size_t>(length);
}

double float_shim_parse(const char *text, size_t size)
{
    using converter = double_conversion::StringToDoubleConverter;
    const converter parser(converter::NO_FLAGS, 0, 0, nullptr, nullptr);
    int used;

    if (size > static_cast<size_t>(std::numeric_limits<int>::max()))
        return std::numeric_limits<double>::quiet_NaN();
    return parser.StringToDouble(text, static_cast<int>(size), &used);
}
