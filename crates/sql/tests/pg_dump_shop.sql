--
-- PostgreSQL database dump
--

\restrict l3pBfbO5mA0u4DAiI1Ask3oItuYUSsledUWiuqq8yqTwEsOao0SwOtk3uHo5FPw

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: Order Lines; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public."Order Lines" (
    order_id bigint NOT NULL,
    line smallint NOT NULL,
    "what?" text,
    price numeric
);


ALTER TABLE public."Order Lines" OWNER TO postgres;

--
-- Name: customers; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.customers (
    id integer NOT NULL,
    name character varying(60) NOT NULL,
    email text,
    since timestamp with time zone DEFAULT now() NOT NULL,
    credit numeric(10,2) DEFAULT 0.00,
    code character(4),
    CONSTRAINT customers_credit_check CHECK ((credit >= (0)::numeric))
);


ALTER TABLE public.customers OWNER TO postgres;

--
-- Name: TABLE customers; Type: COMMENT; Schema: public; Owner: postgres
--

COMMENT ON TABLE public.customers IS 'people; who buy';


--
-- Name: customers_id_seq; Type: SEQUENCE; Schema: public; Owner: postgres
--

CREATE SEQUENCE public.customers_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


ALTER TABLE public.customers_id_seq OWNER TO postgres;

--
-- Name: customers_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: postgres
--

ALTER SEQUENCE public.customers_id_seq OWNED BY public.customers.id;


--
-- Name: order_no; Type: SEQUENCE; Schema: public; Owner: postgres
--

CREATE SEQUENCE public.order_no
    START WITH 1000
    INCREMENT BY 10
    NO MINVALUE
    NO MAXVALUE
    CACHE 5;


ALTER TABLE public.order_no OWNER TO postgres;

--
-- Name: orders; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.orders (
    id bigint NOT NULL,
    no bigint DEFAULT nextval('public.order_no'::regclass) NOT NULL,
    customer integer NOT NULL,
    placed date DEFAULT CURRENT_DATE,
    weight double precision,
    note text,
    photo bytea,
    paid boolean DEFAULT false
);
ALTER TABLE ONLY public.orders ALTER COLUMN weight SET STATISTICS 50;
ALTER TABLE ONLY public.orders ALTER COLUMN note SET STORAGE EXTERNAL;

ALTER TABLE ONLY public.orders REPLICA IDENTITY FULL;


ALTER TABLE public.orders OWNER TO postgres;

--
-- Name: orders_id_seq; Type: SEQUENCE; Schema: public; Owner: postgres
--

ALTER TABLE public.orders ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.orders_id_seq
    START WITH 100
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: customers id; Type: DEFAULT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.customers ALTER COLUMN id SET DEFAULT nextval('public.customers_id_seq'::regclass);


--
-- Data for Name: Order Lines; Type: TABLE DATA; Schema: public; Owner: postgres
--

COPY public."Order Lines" (order_id, line, "what?", price) FROM stdin;
100	0	thing 0	0.00
100	1	thing 1	1.10
100	2	thing 2	2.20
101	0	thing 3	3.30
101	1	thing 4	4.40
101	2	thing 5	5.50
102	0	thing 6	6.60
102	1	thing 7	7.70
102	2	thing 8	8.80
103	0	thing 9	9.90
103	1	thing 10	11.00
103	2	thing 11	12.10
104	0	thing 12	13.20
104	1	thing 13	14.30
104	2	thing 14	15.40
105	0	thing 15	16.50
105	1	thing 16	17.60
105	2	thing 17	18.70
106	0	thing 18	19.80
106	1	thing 19	20.90
106	2	thing 20	22.00
107	0	thing 21	23.10
107	1	thing 22	24.20
107	2	thing 23	25.30
108	0	thing 24	26.40
108	1	thing 25	27.50
108	2	thing 26	28.60
109	0	thing 27	29.70
109	1	thing 28	30.80
109	2	thing 29	31.90
110	0	thing 30	33.00
110	1	thing 31	34.10
110	2	thing 32	35.20
111	0	thing 33	36.30
111	1	thing 34	37.40
111	2	thing 35	38.50
112	0	thing 36	39.60
112	1	thing 37	40.70
112	2	thing 38	41.80
113	0	thing 39	42.90
113	1	thing 40	44.00
113	2	thing 41	45.10
114	0	thing 42	46.20
114	1	thing 43	47.30
114	2	thing 44	48.40
115	0	thing 45	49.50
115	1	thing 46	50.60
115	2	thing 47	51.70
116	0	thing 48	52.80
116	1	thing 49	53.90
116	2	thing 50	55.00
117	0	thing 51	56.10
117	1	thing 52	57.20
117	2	thing 53	58.30
118	0	thing 54	59.40
118	1	thing 55	60.50
118	2	thing 56	61.60
119	0	thing 57	62.70
119	1	thing 58	63.80
119	2	thing 59	64.90
120	0	thing 60	66.00
120	1	thing 61	67.10
120	2	thing 62	68.20
121	0	thing 63	69.30
121	1	thing 64	70.40
121	2	thing 65	71.50
122	0	thing 66	72.60
122	1	thing 67	73.70
122	2	thing 68	74.80
123	0	thing 69	75.90
123	1	thing 70	77.00
123	2	thing 71	78.10
124	0	thing 72	79.20
124	1	thing 73	80.30
124	2	thing 74	81.40
125	0	thing 75	82.50
125	1	thing 76	83.60
125	2	thing 77	84.70
126	0	thing 78	85.80
126	1	thing 79	86.90
126	2	thing 80	88.00
127	0	thing 81	89.10
127	1	thing 82	90.20
127	2	thing 83	91.30
128	0	thing 84	92.40
128	1	thing 85	93.50
128	2	thing 86	94.60
129	0	thing 87	95.70
129	1	thing 88	96.80
129	2	thing 89	97.90
130	0	thing 90	99.00
130	1	thing 91	100.10
130	2	thing 92	101.20
131	0	thing 93	102.30
131	1	thing 94	103.40
131	2	thing 95	104.50
132	0	thing 96	105.60
132	1	thing 97	106.70
132	2	thing 98	107.80
133	0	thing 99	108.90
133	1	thing 100	110.00
133	2	thing 101	111.10
134	0	thing 102	112.20
134	1	thing 103	113.30
134	2	thing 104	114.40
135	0	thing 105	115.50
135	1	thing 106	116.60
135	2	thing 107	117.70
136	0	thing 108	118.80
136	1	thing 109	119.90
136	2	thing 110	121.00
137	0	thing 111	122.10
137	1	thing 112	123.20
137	2	thing 113	124.30
138	0	thing 114	125.40
138	1	thing 115	126.50
138	2	thing 116	127.60
139	0	thing 117	128.70
139	1	thing 118	129.80
139	2	thing 119	130.90
140	0	thing 120	132.00
140	1	thing 121	133.10
140	2	thing 122	134.20
141	0	thing 123	135.30
141	1	thing 124	136.40
141	2	thing 125	137.50
142	0	thing 126	138.60
142	1	thing 127	139.70
142	2	thing 128	140.80
143	0	thing 129	141.90
143	1	thing 130	143.00
143	2	thing 131	144.10
144	0	thing 132	145.20
144	1	thing 133	146.30
144	2	thing 134	147.40
145	0	thing 135	148.50
145	1	thing 136	149.60
145	2	thing 137	150.70
146	0	thing 138	151.80
146	1	thing 139	152.90
146	2	thing 140	154.00
147	0	thing 141	155.10
147	1	thing 142	156.20
147	2	thing 143	157.30
148	0	thing 144	158.40
148	1	thing 145	159.50
148	2	thing 146	160.60
149	0	thing 147	161.70
149	1	thing 148	162.80
149	2	thing 149	163.90
\.


--
-- Data for Name: customers; Type: TABLE DATA; Schema: public; Owner: postgres
--

COPY public.customers (id, name, email, since, credit, code) FROM stdin;
1	Ann	ann@example.org	2024-02-29 11:00:00.5+00	12.50	a   
2	tab\tnew\nline\\ "q"	\N	2000-01-01 00:00:00+00	99999999.99	żó  
3			-infinity	0.00	\N
\.


--
-- Data for Name: orders; Type: TABLE DATA; Schema: public; Owner: postgres
--

COPY public.orders (id, no, customer, placed, weight, note, photo, paid) FROM stdin;
100	1000	2	2024-01-02	0.3333333333333333	note 1\n	\\x0001	f
101	1010	3	2024-01-03	0.6666666666666666	note 2\nnote 2\n	\\x0002	t
102	1020	1	2024-01-04	1	note 3\nnote 3\nnote 3\n	\\x0003	f
103	1030	2	2024-01-05	1.3333333333333333	note 4\nnote 4\nnote 4\nnote 4\n	\\x0004	t
104	1040	3	2024-01-06	1.6666666666666667	\N	\\x0005	f
105	1050	1	2024-01-07	2	note 6\nnote 6\nnote 6\nnote 6\nnote 6\nnote 6\n	\\x0006	t
106	1060	2	2024-01-08	2.3333333333333335		\\x0007	f
107	1070	3	2024-01-09	2.6666666666666665	note 8\n	\\x0008	t
108	1080	1	2024-01-10	3	note 9\nnote 9\n	\\x0009	f
109	1090	2	2024-01-11	3.3333333333333335	\N	\\x000a	t
110	1100	3	2024-01-12	3.6666666666666665	note 11\nnote 11\nnote 11\nnote 11\n	\\x000b	f
111	1110	1	2024-01-13	4	note 12\nnote 12\nnote 12\nnote 12\nnote 12\n	\\x000c	t
112	1120	2	2024-01-14	4.333333333333333	note 13\nnote 13\nnote 13\nnote 13\nnote 13\nnote 13\n	\\x000d	f
113	1130	3	2024-01-15	4.666666666666667		\\x000e	t
114	1140	1	2024-01-16	5	\N	\\x000f	f
115	1150	2	2024-01-17	5.333333333333333	note 16\nnote 16\n	\\x0010	t
116	1160	3	2024-01-18	5.666666666666667	note 17\nnote 17\nnote 17\n	\\x0011	f
117	1170	1	2024-01-19	6	note 18\nnote 18\nnote 18\nnote 18\n	\\x0012	t
118	1180	2	2024-01-20	6.333333333333333	note 19\nnote 19\nnote 19\nnote 19\nnote 19\n	\\x0013	f
119	1190	3	2024-01-21	6.666666666666667	\N	\\x0014	t
120	1200	1	2024-01-22	7		\\x0015	f
121	1210	2	2024-01-23	7.333333333333333	note 22\n	\\x0016	t
122	1220	3	2024-01-24	7.666666666666667	note 23\nnote 23\n	\\x0017	f
123	1230	1	2024-01-25	8	note 24\nnote 24\nnote 24\n	\\x0018	t
124	1240	2	2024-01-26	8.333333333333334	\N	\\x0019	f
125	1250	3	2024-01-27	8.666666666666666	note 26\nnote 26\nnote 26\nnote 26\nnote 26\n	\\x001a	t
126	1260	1	2024-01-28	9	note 27\nnote 27\nnote 27\nnote 27\nnote 27\nnote 27\n	\\x001b	f
127	1270	2	2024-01-29	9.333333333333334		\\x001c	t
128	1280	3	2024-01-30	9.666666666666666	note 29\n	\\x001d	f
129	1290	1	2024-01-31	10	\N	\\x001e	t
130	1300	2	2024-02-01	10.333333333333334	note 31\nnote 31\nnote 31\n	\\x001f	f
131	1310	3	2024-02-02	10.666666666666666	note 32\nnote 32\nnote 32\nnote 32\n	\\x0020	t
132	1320	1	2024-02-03	11	note 33\nnote 33\nnote 33\nnote 33\nnote 33\n	\\x0021	f
133	1330	2	2024-02-04	11.333333333333334	note 34\nnote 34\nnote 34\nnote 34\nnote 34\nnote 34\n	\\x0022	t
134	1340	3	2024-02-05	11.666666666666666	\N	\\x0023	f
135	1350	1	2024-02-06	12	note 36\n	\\x0024	t
136	1360	2	2024-02-07	12.333333333333334	note 37\nnote 37\n	\\x0025	f
137	1370	3	2024-02-08	12.666666666666666	note 38\nnote 38\nnote 38\n	\\x0026	t
138	1380	1	2024-02-09	13	note 39\nnote 39\nnote 39\nnote 39\n	\\x0027	f
139	1390	2	2024-02-10	13.333333333333334	\N	\\x0028	t
140	1400	3	2024-02-11	13.666666666666666	note 41\nnote 41\nnote 41\nnote 41\nnote 41\nnote 41\n	\\x0029	f
141	1410	1	2024-02-12	14		\\x002a	t
142	1420	2	2024-02-13	14.333333333333334	note 43\n	\\x002b	f
143	1430	3	2024-02-14	14.666666666666666	note 44\nnote 44\n	\\x002c	t
144	1440	1	2024-02-15	15	\N	\\x002d	f
145	1450	2	2024-02-16	15.333333333333334	note 46\nnote 46\nnote 46\nnote 46\n	\\x002e	t
146	1460	3	2024-02-17	15.666666666666666	note 47\nnote 47\nnote 47\nnote 47\nnote 47\n	\\x002f	f
147	1470	1	2024-02-18	16	note 48\nnote 48\nnote 48\nnote 48\nnote 48\nnote 48\n	\\x0030	t
148	1480	2	2024-02-19	16.333333333333332		\\x0031	f
149	1490	3	2024-02-20	16.666666666666668	\N	\\x0032	t
150	1500	1	2024-02-21	17	note 51\nnote 51\n	\\x0033	f
151	1510	2	2024-02-22	17.333333333333332	note 52\nnote 52\nnote 52\n	\\x0034	t
152	1520	3	2024-02-23	17.666666666666668	note 53\nnote 53\nnote 53\nnote 53\n	\\x0035	f
153	1530	1	2024-02-24	18	note 54\nnote 54\nnote 54\nnote 54\nnote 54\n	\\x0036	t
154	1540	2	2024-02-25	18.333333333333332	\N	\\x0037	f
155	1550	3	2024-02-26	18.666666666666668		\\x0038	t
156	1560	1	2024-02-27	19	note 57\n	\\x0039	f
157	1570	2	2024-02-28	19.333333333333332	note 58\nnote 58\n	\\x003a	t
158	1580	3	2024-02-29	19.666666666666668	note 59\nnote 59\nnote 59\n	\\x003b	f
159	1590	1	2024-03-01	20	\N	\\x003c	t
\.


--
-- Name: customers_id_seq; Type: SEQUENCE SET; Schema: public; Owner: postgres
--

SELECT pg_catalog.setval('public.customers_id_seq', 3, true);


--
-- Name: order_no; Type: SEQUENCE SET; Schema: public; Owner: postgres
--

SELECT pg_catalog.setval('public.order_no', 1590, true);


--
-- Name: orders_id_seq; Type: SEQUENCE SET; Schema: public; Owner: postgres
--

SELECT pg_catalog.setval('public.orders_id_seq', 159, true);


--
-- Name: Order Lines Order Lines_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public."Order Lines"
    ADD CONSTRAINT "Order Lines_pkey" PRIMARY KEY (order_id, line);


--
-- Name: customers customers_email_key; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_email_key UNIQUE (email);


--
-- Name: customers customers_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (id);


--
-- Name: orders orders_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (id);


--
-- Name: by_email; Type: INDEX; Schema: public; Owner: postgres
--

CREATE UNIQUE INDEX by_email ON public.customers USING btree (email, code DESC NULLS LAST);


--
-- Name: orders_customer_placed_idx; Type: INDEX; Schema: public; Owner: postgres
--

CREATE INDEX orders_customer_placed_idx ON public.orders USING btree (customer, placed DESC);


--
-- Name: Order Lines Order Lines_order_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public."Order Lines"
    ADD CONSTRAINT "Order Lines_order_id_fkey" FOREIGN KEY (order_id) REFERENCES public.orders(id);


--
-- Name: orders orders_customer_fkey; Type: FK CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_customer_fkey FOREIGN KEY (customer) REFERENCES public.customers(id) ON DELETE CASCADE;


--
-- Name: TABLE customers; Type: ACL; Schema: public; Owner: postgres
--

GRANT SELECT ON TABLE public.customers TO clerk;


--
-- PostgreSQL database dump complete
--

\unrestrict l3pBfbO5mA0u4DAiI1Ask3oItuYUSsledUWiuqq8yqTwEsOao0SwOtk3uHo5FPw

