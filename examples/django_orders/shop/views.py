from __future__ import annotations

import json

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt

from django_orders.shop.jobs import ReserveStock
from django_orders.shop.models import Order
from queuert_django import get_client


class OutOfStock(Exception):
    pass


def place(product: str) -> dict[str, object]:
    with transaction.atomic():
        order = Order.objects.create(product=product)
        chain = get_client().start(connections["default"], ReserveStock(order_id=order.pk))
        if product == "unicorn":
            raise OutOfStock  # no order, and no chain
    return {"order": order.pk, "chain": chain.id}


@csrf_exempt
def place_order(request: HttpRequest) -> JsonResponse:
    try:
        return JsonResponse(place(json.loads(request.body)["product"]), status=201)
    except OutOfStock:
        return JsonResponse({"error": "out of stock"}, status=409)


@csrf_exempt
async def place_order_async(request: HttpRequest) -> JsonResponse:
    """Django's transactions are sync: put the code that needs one into a function, and call it in a
    thread.
    """
    try:
        return JsonResponse(await sync_to_async(place)(json.loads(request.body)["product"]), status=201)
    except OutOfStock:
        return JsonResponse({"error": "out of stock"}, status=409)


def show_order(request: HttpRequest, order_id: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"product": order.product, "state": order.state})


def wait_for_parcel(request: HttpRequest, chain_id: str) -> JsonResponse:
    client = get_client()
    chain = client.get_chain(chain_id, ReserveStock)
    if chain is None:
        return JsonResponse({"error": "no such order"}, status=404)
    return JsonResponse({"parcel": client.wait(chain, timeout=30)})
