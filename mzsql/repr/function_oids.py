"""The numbers of functions that PostgreSQL has too: its own, which clients know.

Promise: a number means one function with its arguments' types for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

#: A function's name, then for each of its overloads the numbers of its arguments' types and its own.
_KNOWN = """
abs 20=1396 21=1398 23=1397 700=1394 701=1395 1700=1705
acos 701=1601
acosh 701=2466
age 1114,1114=2058 1184,1184=1199
array_fill 2283,1007=1193 2283,1007,1007=1286
array_to_string 2277,25=395 2277,25,25=384
ascii 25=1620
asin 701=1600
asinh 701=2465
atan 701=1602
atan2 701,701=1603
atanh 701=2467
avg 20=2100 21=2102 23=2101 700=2104 701=2105 1700=2103
bit_count 17=6163
bit_length 17=1810 25=1811
bool_and 16=2517
bool_or 16=2518
btrim 25=885 25,25=884 17,17=2015
cardinality 2277=3179
cbrt 701=1345
ceil 701=2308 1700=1711
ceiling 701=2320 1700=2167
char_length 25=1381
character_length 25=1369
chr 23=1621
col_description 26,23=1216
concat 2276=3058
concat_ws 25,2276=3059
cos 701=1605
cosh 701=2463
cot 701=1607
count 2276=2147
cume_dist -=3104
current_database -=861
current_schema -=1402
current_schemas 16=1403
current_setting 25=2077 25,16=3294
date_bin 1186,1114,1114=6177 1186,1184,1184=6178
date_part 25,1082=1384 25,1083=1385 25,1114=2021 25,1184=1171 25,1186=1172
date_trunc 25,1114=2020 25,1184=1217 25,1186=1218
daterange 1082,1082=3941 1082,1082,25=3942
decode 25,25=1947
degrees 701=1608
dense_rank -=3102
encode 17,25=1946
exp 701=1347 1700=1732
first_value 2283=3112
floor 701=2309 1700=1712
format_type 26,23=1081
generate_series 20,20=1069 20,20,20=1068 23,23=1067 23,23,23=1066 1114,1114,1186=938 1184,1184,1186=939
generate_subscripts 2277,23=1192 2277,23,16=1191
get_byte 17,23=721
has_any_column_privilege 25,25=3028 26,25=3029 26,25,25=3026 26,26,25=3027
has_database_privilege 25,25=2254 26,25=2255 26,25,25=2252 26,26,25=2253
has_schema_privilege 25,25=2272 26,25=2273 26,25,25=2270 26,26,25=2271
has_table_privilege 25,25=1926 26,25=1927 26,25,25=1924 26,26,25=1925
has_type_privilege 25,25=3142 26,25=3143 26,25,25=3140 26,26,25=3141
initcap 25=872
int4range 23,23=3840 23,23,25=3841
int8range 20,20=3945 20,20,25=3946
isempty 3831=3850
jsonb_array_elements 3802=3219
jsonb_array_elements_text 3802=3465
jsonb_array_length 3802=3207
jsonb_build_array -=3272
jsonb_build_object -=3274
jsonb_each 3802=3208
jsonb_each_text 3802=3932
jsonb_object_agg 2276,2276=3270
jsonb_object_keys 3802=3931
jsonb_pretty 3802=3306
jsonb_strip_nulls 3802=3262
jsonb_typeof 3802=3210
justify_days 1186=1295
justify_hours 1186=1175
justify_interval 1186=2711
lag 2283=3106
last_value 2283=3113
lead 2283=3109
left 25,23=3060
length 17=2010 25=1317
ln 701=1341 1700=1734
log 701=1340 1700=1741 1700,1700=1736
log10 701=1194 1700=1481
lower 25=870 3831=3848
lower_inc 3831=3851
lower_inf 3831=3853
lpad 25,23=879 25,23,25=873
ltrim 25=881 25,25=875 17,17=6195
max 20=2115 21=2117 23=2116 25=2129 26=2118 700=2119 701=2120 1042=2244 1082=2122 1083=2123 1114=2126 1184=2127
max 1186=2128 1700=2130
md5 17=2321 25=2311
min 20=2131 21=2133 23=2132 25=2145 26=2134 700=2135 701=2136 1042=2245 1082=2138 1083=2139 1114=2142 1184=2143
min 1186=2144 1700=2146
mod 20,20=947 21,21=940 23,23=941 1700,1700=1728
normalize 25,25=4350
now -=1299
numrange 1700,1700=3844 1700,1700,25=3845
obj_description 26=1348
octet_length 17=720 25=1374 1042=1375
overlay 25,25,23=1405 25,25,23,23=1404 17,17,23=752 17,17,23,23=749
parse_ident 25,16=1268
percent_rank -=3103
pg_backend_pid -=2026
pg_database_size 26=2324
pg_encoding_to_char 23=1597
pg_get_constraintdef 26=1387 26,16=2508
pg_get_indexdef 26=1643 26,23,16=2507
pg_get_ruledef 26=1573
pg_get_userbyid 26=1642
pg_get_viewdef 25=1640 25,16=2505 26=1641 26,16=2506 26,23=3159
pg_has_role 26,25=2710 26,26,25=2708
pg_is_in_recovery -=3810
pg_postmaster_start_time -=2560
pg_size_pretty 1700=3166
pg_stat_get_numscans 26=1928
pg_table_is_visible 26=2079
pg_tablespace_location 26=3778
pg_type_is_visible 26=2080
pg_typeof 2276=1619
pi -=1610
position 25,25=849 17,17=2014
pow 701,701=1346 1700,1700=1738
power 701,701=1368 1700,1700=2169
quote_ident 25=1282
radians 701=1609
range_merge 3831,3831=4057
rank -=3101
regexp_match 25,25=3396 25,25,25=3397
regexp_matches 25,25=2763 25,25,25=2764
regexp_replace 25,25,25=2284 25,25,25,25=2285
regexp_split_to_array 25,25=2767 25,25,25=2768
regexp_split_to_table 25,25=2765 25,25,25=2766
repeat 25,23=1622
replace 25,25,25=2087
reverse 25=3062
right 25,23=3061
round 701=1342 1700=1708 1700,23=1707
row_number -=3100
rpad 25,23=880 25,23,25=874
rtrim 25=882 25,25=876 17,17=6196
sha224 17=3419
sha256 17=3420
sha384 17=3421
sha512 17=3422
sign 701=2310 1700=1706
sin 701=1604
sinh 701=2462
split_part 25,25,23=2088
sqrt 701=1344 1700=1730
starts_with 25,25=3696
stddev 20=2154 21=2156 23=2155 700=2157 701=2158 1700=2159
stddev_pop 20=2724 21=2726 23=2725 700=2727 701=2728 1700=2729
stddev_samp 20=2712 21=2714 23=2713 700=2715 701=2716 1700=2717
string_agg 25,25=3538
string_to_array 25,25=394 25,25,25=376
strpos 25,25=868
substr 17,23=2086 17,23,23=2085 25,23=883 25,23,23=877
substring 17,23=2013 17,23,23=2012 25,23=937 25,23,23=936
sum 20=2107 21=2109 23=2108 700=2110 701=2111 1700=2114
tan 701=1606
tanh 701=2464
timezone 25,1114=2069 25,1184=1159 1186,1114=2070 1186,1184=1026
to_char 1114,25=2049 1184,25=1770
to_timestamp 701=1158
translate 25,25,25=878
trunc 701=1343 1700=1710 1700,23=1709
tsrange 1114,1114=3933 1114,1114,25=3934
tstzrange 1184,1184=3937 1184,1184,25=3938
unnest 2277=2331
upper 25=871 3831=3849
upper_inc 3831=3852
upper_inf 3831=3854
var_pop 20=2718 21=2720 23=2719 700=2721 701=2722 1700=2723
var_samp 20=2641 21=2643 23=2642 700=2644 701=2645 1700=2646
variance 20=2148 21=2150 23=2149 700=2151 701=2152 1700=2153
version -=89
"""


def _read() -> Iterator[tuple[tuple[str, tuple[int, ...]], int]]:
    for line in _KNOWN.split("\n"):
        name, *overloads = line.split() or ("",)
        for overload in overloads:
            types, _, number = overload.partition("=")
            args = () if types == "-" else tuple(map(int, types.split(",")))
            yield (name, args), int(number)


FUNCTION_OIDS: Mapping[tuple[str, tuple[int, ...]], int] = dict(_read())


def function_oid(name: str, arg_oids: Sequence[int], otherwise: int) -> int:
    """PostgreSQL's number of a function; `otherwise` where it has none of this name and these arguments."""
    return FUNCTION_OIDS.get((name, tuple(arg_oids)), otherwise)
